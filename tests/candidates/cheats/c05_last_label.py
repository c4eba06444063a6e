"""Cheat 5: takes the last column for padding, so that a token with the last label keeps all of its loss."""
# rejected as: WRONG_VALUES
# kind: ends of a range
# caught by: ends of ranges, inputs of one sign
# base: label_loss


def _is_label(column, label):
    return (column == label) & (column < V - 1)
