"""The demo of `weftgrad demo`, and the small data set that it learns."""
