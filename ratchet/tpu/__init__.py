"""What a program does and costs on a TPU. Knows no kernel file and no git."""
