"""The TPU compiler, ahead of time, in a child process. The only room that knows libtpu."""
