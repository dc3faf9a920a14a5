"""Rules for rows of different shapes: what each kind of op does with an axis that differs.

They read and make `layouts/ragged.py: Ragged`. It may import `converters/arrays` and below; nobody
but `parsing`, `sparse` and control flow may import it. An op that has no rule here runs row by
row, its result is ragged again. What TensorFlow calls ragged in the body, ops on values and
splits, does not belong here: that is `converters/sparse`.
"""

from tf_pfor.converters.ragged import blocks as blocks
from tf_pfor.converters.ragged import convolutions as convolutions
from tf_pfor.converters.ragged import elementwise as elementwise
from tf_pfor.converters.ragged import gather as gather
from tf_pfor.converters.ragged import image as image
from tf_pfor.converters.ragged import linalg as linalg
from tf_pfor.converters.ragged import lists as lists
from tf_pfor.converters.ragged import moves as moves
from tf_pfor.converters.ragged import numbers as numbers
from tf_pfor.converters.ragged import padding as padding
from tf_pfor.converters.ragged import products as products
from tf_pfor.converters.ragged import reductions as reductions
from tf_pfor.converters.ragged import scatter as scatter
from tf_pfor.converters.ragged import sets as sets
from tf_pfor.converters.ragged import shapes as shapes
from tf_pfor.converters.ragged import sized_slices as sized_slices
from tf_pfor.converters.ragged import slices as slices
from tf_pfor.converters.ragged import suppression as suppression
