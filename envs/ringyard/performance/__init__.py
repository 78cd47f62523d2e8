"""Performance models: seconds per iteration of a job on its GPUs, beside its neighbours.

`model` has the protocol for own models, `composite` the model of all parts. conf/performance has a yaml for
each model.
"""

from ringyard.fabric import Fabric as Fabric
from ringyard.performance.composite import composite as composite
from ringyard.performance.host_resources import LoadedMemory as LoadedMemory
from ringyard.performance.interference import Interference as Interference
from ringyard.performance.interference import burst_interference as burst_interference
from ringyard.performance.interference import no_interference as no_interference
from ringyard.performance.interference import pair_table as pair_table
from ringyard.performance.interference import sensitivity_pressure as sensitivity_pressure
from ringyard.performance.model import IterationSeconds as IterationSeconds
from ringyard.performance.model import PerformanceModel as PerformanceModel
from ringyard.performance.model import ideal as ideal
from ringyard.performance.plans import plans as plans
from ringyard.performance.ring import ring_contention as ring_contention
