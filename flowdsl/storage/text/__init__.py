"""Line-based files: text and SVMLight."""
