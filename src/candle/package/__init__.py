"""The `.candle` format, the store of installed packages, and the names of models."""
