"""How Python becomes machine code: the only package that imports Numba. Its README has the mechanisms."""

from ringyard.compiled.bundles import bundle as bundle
from ringyard.compiled.functions import *
from ringyard.compiled.interfaces import *
from ringyard.compiled.records import *
