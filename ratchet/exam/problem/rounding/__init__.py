"""What honest arithmetic may lose: the loss of every operation's result, beside its value in float64.

The loss of a value is the standard deviation of what all roundings before it add up to, to first order and as if they
were independent. It is the running error analysis of Wilkinson with variances in place of bounds (Higham, Accuracy and
Stability of Numerical Algorithms, chapter 3; Higham and Mary 2019 for the variances). It needs nothing but the exact
values: no host's arithmetic is in it. Counted are

* one rounding of every value to the dtype that the reference keeps it in, and at least to float32. That of an input
  too: a kernel may multiply before it subtracts, so that terms that cancel are judged by their size;
* the accumulation of a sum of n terms in float32 *in any order*. One after another, n terms of random signs lose
  ``u sqrt(n / 6 sum t^2)`` and terms of one sign ``u sqrt(n) |sum| / 3``, the most that an honest order does;
* the roundings of a sum's terms to a narrow dtype as they are, where equal terms make them add up;
* of a product, what its precision asks the matrix unit to leave out of a float32 operand;
* a factor that may be multiplied into an operand of a product before it, which is rounded again then.

A value that jumps (a comparison, a rounding to integers, an index) may jump where its argument is within ``NEAR``
losses of the place: that is the off-by-one which is nobody's fault.
"""
