"""Talking with a camera over the two protocols that every one of them has, HTTP/1.1 and RTSP/1.0."""
