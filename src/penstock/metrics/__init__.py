"""What is counted, measured and published: CloudWatch's series and the page at `/metrics`. This
folder's own files are the driver that publishes each second, the event loop's lag, and failures of
single items.
"""
