"""The frozen problem: its reference, its inputs, what honest arithmetic may lose, and the work it cannot avoid."""
