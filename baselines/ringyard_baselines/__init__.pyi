from ringyard_baselines.classic.preemptive import las as las
from ringyard_baselines.classic.preemptive import srsf as srsf
from ringyard_baselines.classic.preemptive import srtf as srtf
from ringyard_baselines.classic.start_only import fifo as fifo
from ringyard_baselines.classic.start_only import fifo_backfill as fifo_backfill
from ringyard_baselines.classic.start_only import sjf as sjf
from ringyard_baselines.scheduler import Scheduler as Scheduler
from ringyard_baselines.scheduler import run as run
