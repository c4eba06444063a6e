"""What is right, who is examined, and the verdict."""
