# The part of TensorFlow 2.21 that flowdsl and its examples use, fully typed.
#
# TensorFlow ships no types, and types-tensorflow leaves queues, tf.function, tf.distribute and most
# raw ops untyped, so that a typo passes. A name that is missing here is an error in the checkers:
# add it; a test holds every name and parameter here against the real module.
from tensorflow import compat as compat
from tensorflow import config as config
from tensorflow import data as data
from tensorflow import debugging as debugging
from tensorflow import distribute as distribute
from tensorflow import errors as errors
from tensorflow import io as io
from tensorflow import keras as keras
from tensorflow import math as math
from tensorflow import nn as nn
from tensorflow import queue as queue
from tensorflow import ragged as ragged
from tensorflow import random as random
from tensorflow import raw_ops as raw_ops
from tensorflow import strings as strings
from tensorflow import train as train
from tensorflow._function import GradientTape as GradientTape
from tensorflow._function import function as function
from tensorflow._ops import abs as abs
from tensorflow._ops import add_n as add_n
from tensorflow._ops import argmax as argmax
from tensorflow._ops import as_dtype as as_dtype
from tensorflow._ops import boolean_mask as boolean_mask
from tensorflow._ops import cast as cast
from tensorflow._ops import concat as concat
from tensorflow._ops import cond as cond
from tensorflow._ops import constant as constant
from tensorflow._ops import control_dependencies as control_dependencies
from tensorflow._ops import convert_to_tensor as convert_to_tensor
from tensorflow._ops import device as device
from tensorflow._ops import ensure_shape as ensure_shape
from tensorflow._ops import equal as equal
from tensorflow._ops import executing_eagerly as executing_eagerly
from tensorflow._ops import exp as exp
from tensorflow._ops import expand_dims as expand_dims
from tensorflow._ops import fill as fill
from tensorflow._ops import gather as gather
from tensorflow._ops import get_static_value as get_static_value
from tensorflow._ops import identity as identity
from tensorflow._ops import init_scope as init_scope
from tensorflow._ops import logical_not as logical_not
from tensorflow._ops import matmul as matmul
from tensorflow._ops import maximum as maximum
from tensorflow._ops import minimum as minimum
from tensorflow._ops import name_scope as name_scope
from tensorflow._ops import not_equal as not_equal
from tensorflow._ops import numpy_function as numpy_function
from tensorflow._ops import one_hot as one_hot
from tensorflow._ops import ones as ones
from tensorflow._ops import ones_like as ones_like
from tensorflow._ops import range as range
from tensorflow._ops import reduce_all as reduce_all
from tensorflow._ops import reduce_max as reduce_max
from tensorflow._ops import reduce_mean as reduce_mean
from tensorflow._ops import reduce_sum as reduce_sum
from tensorflow._ops import reshape as reshape
from tensorflow._ops import shape as shape
from tensorflow._ops import size as size
from tensorflow._ops import square as square
from tensorflow._ops import squeeze as squeeze
from tensorflow._ops import stack as stack
from tensorflow._ops import tanh as tanh
from tensorflow._ops import transpose as transpose
from tensorflow._ops import variable_creator_scope as variable_creator_scope
from tensorflow._ops import where as where
from tensorflow._ops import while_loop as while_loop
from tensorflow._ops import zeros as zeros
from tensorflow._ops import zeros_like as zeros_like
from tensorflow._tensor import DType as DType
from tensorflow._tensor import IndexedSlices as IndexedSlices
from tensorflow._tensor import Module as Module
from tensorflow._tensor import RaggedTensor as RaggedTensor
from tensorflow._tensor import SparseTensor as SparseTensor
from tensorflow._tensor import Tensor as Tensor
from tensorflow._tensor import TensorShape as TensorShape
from tensorflow._tensor import TensorSpec as TensorSpec
from tensorflow._tensor import TypeSpec as TypeSpec
from tensorflow._tensor import Variable as Variable

__version__: str

bool: DType
float16: DType
float32: DType
float64: DType
int8: DType
int32: DType
int64: DType
resource: DType
string: DType
uint8: DType
