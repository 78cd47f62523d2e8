"""How fast a job would be elsewhere, the others where they are."""

from ringyard.compiled import Int32Vector, linked_kernel
from ringyard.sim.engine.holding import hold, let_go, lift, put_back
from ringyard.sim.engine.links import count_links, crowd, put_on_links
from ringyard.sim.engine.physics import Physics, iteration_seconds
from ringyard.sim.engine.shape import Shape, num_places, set_shape
from ringyard.sim.engine.surroundings import surround
from ringyard.state.arrays import State
from ringyard.state.records import Network

__all__ = ["what_if"]

_MAX_MIN = int(Network.MAX_MIN)


@linked_kernel
def what_if(state: State, b: int, j: int, shape: Shape, places: Int32Vector, physics: Physics) -> float:
    """Seconds per base iteration of job j elsewhere or in another shape; arguments as in `life.carry_out`.

    The job is put there for a moment, without anybody noticing, and back again.
    """
    job = state.jobs[b, j]
    network = state.clusters[b].network
    is_ring = state.clusters[b].global_links != 0 and job.num_servers > 1
    if is_ring and network != _MAX_MIN:
        put_on_links(state, b, j, -1.0)
    num_held = lift(state, b, j)
    set_shape(job, shape)
    hold(state, b, j, places, num_places(shape))
    surround(state, b, j)
    if state.clusters[b].global_links and job.num_servers > 1:
        if network == _MAX_MIN:
            count_links(state, b, -1 if num_held > 0 else j)
            job.contenders = job.new_contenders
        else:
            job.contenders = crowd(state, b, j, 0.0)
    seconds = iteration_seconds(job, j, physics) / job.progress_per_iteration
    let_go(state, b, j)
    put_back(state, b, j, num_held)
    if network == _MAX_MIN:
        count_links(state, b, -1)  # `look` reads the links' loads
    elif is_ring:
        put_on_links(state, b, j, 1.0)
    return seconds
