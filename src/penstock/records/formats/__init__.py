"""Records in and out of bytes: lines, CSV, JSON, Parquet, RecordIO, TFRecord, and their
checksums.
"""
