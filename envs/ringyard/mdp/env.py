"""`ClusterEnv`: one cluster behind Gymnasium's Env interface."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.render import draw_gantt
from ringyard.mdp.setting import Setting

__all__ = ["ClusterEnv"]

SEGMENT_ROWS = 8192


class ClusterEnv(gymnasium.Env[Any, np.int64]):
    """Schedule deep-learning jobs on a cluster of multi-GPU servers.

    ## Action space
    `Discrete(V x T + R x A + 1)`, V visible waiting jobs, T templates, R visible running jobs and A ways to
    change one (none by default). Action `i * T + t` starts visible job i as template t says; action
    `V * T + r * A + a` changes running slot r by adjustment a (with `preemptive`, adjustment 0 stops it;
    others resize, rebatch, move, give or take cores, cap memory bandwidth); the last action waits for the
    next event. A start takes no time. Moments with nothing to decide pass by themselves. `action_masks()` and
    `info["action_mask"]` say which actions are valid.

    ## Observation space
    A Dict of one-dimensional float32 blocks with values in [-10, 10], most in [0, 1]; `flat=True` gives
    the same numbers as one Box. A block holds the features of one item after the other. Unused slots
    are 0 and have a 0 in the block's mask. `s(x, c)` is x / (x + c). This is the default,
    `queue_and_cluster`; `queue_cluster_and_resources` adds blocks for what else makes jobs fast or slow.

    | block | feature | meaning (unit before scaling) |
    |---|---|---|
    | waiting [V x 12] | 0 | (ln isolated run time (s) - 6) / 2.5; 0 if not predictable |
    | | 1 | log2(GPUs) / 3 - 0.5 |
    | | 2 | (ln GPU seconds - 7) / 3; 0 if not predictable |
    | | 3 | s(time since submission, 1 h) |
    | | 4-7 | rank among the visible by features 0-3, in [0, 1) |
    | | 8 | ln(1 + gradient bytes / (1 GB/s x compute seconds)) - 1 |
    | | 9 | 1 if predictable |
    | | 10 | share of iterations left; 1 if not predictable |
    | | 11 | s(GPU seconds held, 10 h) |
    | waiting_mask [V] | | 1 if the slot holds a job |
    | placements [V x T x 3] | 0 | 1 if the template finds GPUs for the job now |
    | | 1 | s(servers spanned - 1, 2) |
    | | 2 | 1 - isolated / predicted seconds per iteration there; if faster, predicted / isolated - 1 |
    | running [R x 7] | 0 | s(time left at the present speed, 1 h); 0 if not predictable |
    | | 1 | 1 if predictable |
    | | 2 | s(GPUs, 4) |
    | | 3 | s(time since its last start, 1 h) |
    | | 4 | s(GPU seconds held, 10 h) |
    | | 5 | s(servers spanned - 1, 2) |
    | | 6 | 1 - isolated / present seconds per iteration; if faster, present / isolated - 1 |
    | running_mask [R] | | 1 if the slot holds a job; in heap order of ends, by row if any is uncertain |
    | servers [S x 3] | 0 | free GPUs / GPUs |
    | | 1 | s(jobs here that span servers, 2) |
    | | 2 | s(GPUs, 8) |
    | cluster [8] | 0 | free GPUs / GPUs |
    | | 1 | free GPUs on partly used servers / GPUs |
    | | 2 | s(waiting jobs, 16) |
    | | 3 | s(waiting jobs beyond the visible, 16) |
    | | 4 | s(running jobs, 16) |
    | | 5 | s(GPUs asked by waiting jobs / GPUs, 1) |
    | | 6 | share of stops among starts and stops |
    | | 7 | s(sum over predictable jobs in the system of 1 / predicted run time (1/s), 0.01) |

    ## Rewards
    With `job_completion_time` (default): minus the integral of the number of jobs in the system since
    the last step, over the jobs' total isolated run time, so that the undiscounted return is minus
    (mean JCT / mean run time). Others: `slowdown`, `makespan`, `utilisation`.

    ## Starting state
    An empty cluster at the first arrival of a job table drawn from the setting's workloads
    (`reset(options={"workload": k})` chooses table k).

    ## Episode end
    Terminated when every job has finished; truncated at `limit_seconds`. The last `info` then holds
    `episode_jct` (mean JCT in seconds of the finished jobs), `workload` and `num_finished`.

    ## Presets
    `ringyard/Contention-v0`, `ringyard/Sharing-v0`, `ringyard/CpuGpu-v0`, `ringyard/Elastic-v0` and
    `ringyard/Full-v0` are settings of this environment (`ringyard.mdp.presets`).

    ## Arguments
    Args:
        setting: cluster, workload, performance and the rest; see `ringyard.mdp.setting.Setting`.
        render_mode: None or "rgb_array" (a Gantt chart of the servers over time).

    Raises:
        ActionError: from `step`, for an action outside the space, or a masked one if the setting's
            `on_invalid` is "raise".
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, setting: Setting | None = None, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ConfigurationError(f"render_mode is {render_mode!r}; expected None or 'rgb_array'")
        self.setting = setting or Setting()
        self.render_mode = render_mode
        self._batch = ClusterBatch(self.setting, 1, SEGMENT_ROWS if render_mode else 0)
        self.observation_space = self.setting.observation.space(self.setting.cluster, self.setting.actions)
        self.action_space = spaces.Discrete(self.setting.actions.num_actions)

    @property
    def batch(self) -> ClusterBatch:
        """The batch of one under this face."""
        return self._batch

    def action_masks(self) -> NDArray[np.bool_]:
        """[actions] True where an action is valid (as sb3-contrib expects)."""
        return self._batch.masks[0].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; `options={"workload": k}` chooses job table k."""
        super().reset(seed=seed)
        entry = int(self.np_random.integers(self.setting.num_workloads))
        if options and "workload" in options:
            entry = int(options["workload"])
            if not 0 <= entry < self.setting.num_workloads:
                raise ConfigurationError(
                    f"options['workload'] is {entry}; expected 0..{self.setting.num_workloads - 1}"
                )
        self._batch.reset(np.array([0]), np.array([entry]))
        return self._observation(), {"action_mask": self.action_masks(), "workload": entry}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out one action; see the class."""
        actions = np.array([action], dtype=np.int64)
        masked = self._batch.valid(actions, np.array([0]))
        self._batch.step(actions)
        done, truncated = bool(self._batch.done[0]), bool(self._batch.truncated[0])
        info: dict[str, Any] = {"action_mask": self.action_masks()}
        if masked[0]:
            info["invalid_action"] = True
        if done or truncated:
            info["episode_jct"] = self._batch.mean_jct(0)
            info["num_finished"] = int(self._batch.state.clusters["num_done"][0])
            info["workload"] = int(self._batch.entries[0])
        return self._observation(), float(self._batch.rewards[0]), done, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The Gantt chart [height, width, 3] in "rgb_array" mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array'")
            return None
        return draw_gantt(self._batch.state, 0, self.setting.cluster)

    def _observation(self) -> Any:
        return self._batch.split(self._batch.observations[0].copy())
