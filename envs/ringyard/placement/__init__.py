"""Placement rules: which GPUs a job gets, given how many. Schedulers and agents use the same rules.

`rule` has the protocol for own rules. conf/placement has a yaml for each rule.
"""

from ringyard.placement.rule import FindGpus as FindGpus
from ringyard.placement.rule import PlacementRule as PlacementRule
from ringyard.placement.rule import place as place
from ringyard.placement.rules import by_tier as by_tier
from ringyard.placement.rules import consolidate as consolidate
from ringyard.placement.rules import fastest as fastest
from ringyard.placement.rules import first_fit as first_fit
from ringyard.placement.rules import least_contended as least_contended
from ringyard.placement.rules import least_fragmenting as least_fragmenting
from ringyard.placement.rules import lwf as lwf
from ringyard.placement.rules import pack as pack
from ringyard.placement.rules import pack_on_types as pack_on_types
from ringyard.placement.rules import random_gpus as random_gpus
from ringyard.placement.rules import spread as spread
from ringyard.placement.share import share as share
from ringyard.placement.share import share_any as share_any
