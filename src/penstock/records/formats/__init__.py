"""Formats of records: lines, CSV, JSON, Parquet, RecordIO, TFRecord, and their checksums."""
