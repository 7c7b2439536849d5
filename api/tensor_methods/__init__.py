"""Methods of Tensor that are not ops (conversion, views, printing), and the installation of generated methods."""
