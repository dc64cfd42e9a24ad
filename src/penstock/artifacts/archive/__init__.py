"""Archives, which are hostile until read: tar and zip as streams of members, unpacked within
bounds.
"""
