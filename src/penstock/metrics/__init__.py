"""What is counted, measured and published: CloudWatch's series and the page at `/metrics`. The
floor holds the driver that publishes each second.
"""
