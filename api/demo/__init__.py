"""The demo behind `weftgrad demo`, and the small data set it learns from."""
