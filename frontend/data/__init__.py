"""Data for models: iterators over batches, and files of records. `mx.io` and `mx.recordio` offer them."""
