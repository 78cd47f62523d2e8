"""The allocator: a compiled rule that turns a score per job into GPU assignments.

Baselines score every job 0, agents give each job a score in [-1, 1] at every decision. A job is *live* while
it waits or runs. One decision (`run_allocator`):

1. `estimates`: seconds that each live job still has to run. They give its *weight*, which grows with its
   score: seconds left ** -gamma * exp(score_scale * score).
2. `utilities`: (speed on k GPUs / speed as asked) ** size_power, computed once for each job table.
3. `target_sizes`: grant GPUs greedily, each step where weight x utility grows most per GPU.
4. `allocator`: choose a GPU type for each target, if the cluster has several.
5. `gpu_placement`: shrink jobs above their target. Then place each target, largest first, on one server or on
   whole ones. `worker_resources` says with how many cores and how much RAM.
6. `reclaim`: make room there: preempt jobs without a target, take cores back, migrate small jobs.
7. `allocator`: start further waiting jobs on GPUs that are left free (backfilling).
8. `gpu_sharing`: co-locate jobs on shared GPUs, where that wins weighted speed.
9. `core_allocation`: divide each server's cores among its jobs, greedily by weighted speed.

`allocation_plan` has the arrays between the steps. Kernels name cluster `b`, job `j`, server `s`, GPU `g`.
With `Allocator.start_only`, waiting jobs start in descending order of weight per GPU instead of steps 2 to 9.
"""

from ringyard.allocator.allocation_plan import AllocationPlan as AllocationPlan
from ringyard.allocator.allocation_plan import AllocatorConfig as AllocatorConfig
from ringyard.allocator.allocation_plan import empty_allocation_plan as empty_allocation_plan
from ringyard.allocator.allocation_plan import logged_moves as logged_moves
from ringyard.allocator.allocator import Allocator as Allocator
from ringyard.allocator.allocator import Gamma as Gamma
from ringyard.allocator.allocator import RunningFactor as RunningFactor
from ringyard.allocator.allocator import SizePower as SizePower
from ringyard.allocator.allocator import StartOnly as StartOnly
from ringyard.allocator.allocator import run_allocator as run_allocator
from ringyard.allocator.estimates import UNKNOWN_SECONDS as UNKNOWN_SECONDS
from ringyard.allocator.estimates import Estimate as Estimate
from ringyard.allocator.estimates import EstimateSecondsLeft as EstimateSecondsLeft
from ringyard.allocator.estimates import UnknownSeconds as UnknownSeconds
from ringyard.allocator.estimates import attained as attained
from ringyard.allocator.estimates import predicted as predicted
from ringyard.allocator.utilities import JobUtilities as JobUtilities
from ringyard.allocator.utilities import job_utilities as job_utilities
from ringyard.allocator.utilities import with_capacity_for as with_capacity_for
from ringyard.allocator.utilities import with_utilities_of as with_utilities_of
from ringyard.allocator.utilities import write_utilities as write_utilities
