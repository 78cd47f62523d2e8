"""What is drawn is what happened: bars, rings, waiting jobs; and pictures come out of it."""

import copy
import pickle
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from matplotlib.image import imread

from conftest import composed, experiment_ids, leaf
from ringyard import Allocation, Cluster, ClusterEnv, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import experiment
from ringyard.rendering.chart import save_gantt
from ringyard.rendering.frames import FRAME_SHAPE, FrameDrawer, save_video
from ringyard.rendering.history import bars_of, history_of, rings_of
from ringyard.state.arrays import waiting_rows
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import make_simulator


def simulated(cluster, jobs, places, **options):
    """Each job starts on its places as soon as it may; to the end."""
    sim = Simulator(cluster, jobs, ideal(), segment_rows=64, **options)
    while not sim.done:
        for job in sim.view().waiting.tolist():
            sim.apply([Allocation(job, places[job])])
        sim.advance()
    return sim


def first_action(env, info):
    """The first valid action, or a score of 0 for every job."""
    if isinstance(env.action_space, gymnasium.spaces.Box):
        return np.zeros(env.action_space.shape, np.float32)
    return info["action_mask"].argmax()


@pytest.fixture
def shared():
    """Two servers of two GPUs, two jobs to a GPU: job 0 spans; job 1 shares GPU 0 with it, then is alone."""
    cluster = Cluster((2, 2), jobs_per_gpu=2)
    jobs = JobTable.from_columns([0.0, 10.0, 20.0], [2, 1, 2], [60.0, 100.0, 10.0])
    return simulated(cluster, jobs, {0: (0, 2), 1: (0,), 2: (1, 3)})


def test_bars_are_cut_where_neighbours_come_and_go(shared):
    bars = bars_of(history_of(shared.state, 0, shared.cluster))
    on_first = {
        (job, start, stop, lane, lanes, spans)
        for job, gpu, start, stop, lane, lanes, spans in zip(
            *(
                getattr(bars, name).tolist()
                for name in ("job", "gpu", "start", "stop", "lane", "lanes", "spans")
            ),
            strict=True,
        )
        if gpu == 0
    }
    assert on_first == {
        (0, 0.0, 10.0, 0, 1, True),
        (0, 10.0, 60.0, 0, 2, True),
        (1, 10.0, 60.0, 1, 2, False),
        (1, 60.0, 110.0, 0, 1, False),
    }
    held = (bars.stop - bars.start).sum()
    assert held == pytest.approx(shared.state.jobs[0, :3]["attained_service"].sum())


def test_rings_are_jobs_that_span_servers(shared):
    rings = rings_of(history_of(shared.state, 0, shared.cluster))
    said = sorted(zip(*(c.tolist() for c in (rings.link, rings.start, rings.stop, rings.rings)), strict=True))
    one = [(0.0, 20.0, 1), (20.0, 30.0, 2), (30.0, 60.0, 1)]
    assert said == [(link, *interval) for link in (0, 1) for interval in one]


def test_uplinks_carry_jobs_that_span_racks():
    cluster = Cluster((1, 1, 1), rack_of_server=(0, 0, 1))
    jobs = JobTable.from_columns([0.0, 0.0], [2, 1], [5.0, 5.0])
    inside = simulated(cluster, jobs, {0: (0, 1), 1: (2,)})
    across = simulated(cluster, jobs, {0: (0, 2), 1: (1,)})
    links = [set(rings_of(history_of(sim.state, 0, cluster)).link.tolist()) for sim in (inside, across)]
    assert links == [{0, 1}, {0, 2, 3, 4}]


def test_an_earlier_moment_shows_who_waited_and_ran_then(shared):
    whole = history_of(shared.state, 0, shared.cluster)
    assert whole.is_complete
    then = whole.until(25.0)
    assert then.running.tolist() == [0, 1, 2]
    assert (whole.until(5.0).running.tolist(), whole.until(5.0).waiting.tolist()) == ([0], [])
    assert whole.until(61.0).finished.tolist() == [0, 2]
    assert whole.until(61.0).mean_jct == pytest.approx((60 + 10) / 2)
    assert bars_of(then).stop.max() == 25.0


@pytest.fixture(scope="module")
def full():
    """A simulation with everything in it: what was seen in the middle, who ran and waited then; its end."""
    config = composed("compare", "experiment=full")
    world = {name: to_plain(config[name]) for name in ENVIRONMENT_GROUPS}
    scheduler = leaf("scheduler", "srtf")
    sim = make_simulator(world, 0, 3, None, segment_rows=4096)
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0))
    play(sim, scheduler, 250)
    running = sim.state.running[0, : sim.state.clusters[0]["num_running"]].tolist()
    middle = history_of(sim.state, 0, sim.cluster), running, waiting_rows(sim.state, 0).tolist()
    play(sim, scheduler, 10**6)
    return *middle, sim


def play(sim, scheduler, decisions):
    for _ in range(decisions):
        sim.apply(scheduler.decide(sim.view(scheduler.observability)))
        if sim.done:
            return
        sim.advance()


def test_a_running_simulation_is_drawn_as_it_will_be_remembered(full):
    live, running, waiting, sim = full
    assert live.running.tolist() == sorted(running)
    assert live.waiting.tolist() == sorted(waiting)
    assert min(len(running), len(waiting)) > 0
    later = history_of(sim.state, 0, sim.cluster)
    assert later.is_complete
    columns = (vars(bars_of(one)).values() for one in (live, later.until(live.now)))
    for now, then in zip(*columns, strict=True):
        assert np.array_equal(np.sort(now), np.sort(then))


def test_servers_that_are_down_and_cpu_jobs_are_remembered(full):
    *_, sim = full
    held = history_of(sim.state, 0, sim.cluster).segments
    jobs = sim.state.jobs[0, :-1]
    starts = np.unique(held[held["job"] >= 0][["job", "start_seconds", "stop_seconds"]])
    run = np.bincount(starts["job"], starts["stop_seconds"] - starts["start_seconds"], len(jobs))
    assert run == pytest.approx(jobs["run_seconds"])
    on_cores = np.flatnonzero(jobs["asked_gpus"] == 0)
    assert len(on_cores) > 0
    assert not held["gpu_bits"][np.isin(held["job"], on_cores)].any()
    down = held[held["job"] < 0]
    assert len(down) == sim.state.servers["num_failures"].sum() > 0
    assert (down["stop_seconds"] > down["start_seconds"]).all()


@pytest.mark.parametrize("name", ["sharing", "full"])
def test_pictures_keep_their_size_and_change(name):
    env = ClusterEnv(replace(experiment(name), num_workloads=2), render_mode="rgb_array")
    _, info = env.reset(seed=0)
    first = env.render()
    for _ in range(40):
        _, _, done, _, info = env.step(int(info["action_mask"].argmax()))
        if done:
            break
    later = env.render()
    assert first.shape == later.shape == (*FRAME_SHAPE, 3)
    assert first.dtype == later.dtype == np.uint8
    assert len(np.unique(later.reshape(-1, 3), axis=0)) > len(np.unique(first.reshape(-1, 3), axis=0)) > 5
    for again in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert np.array_equal(again.render(), later)


@pytest.mark.parametrize("name", ["ringyard/Cluster-v0", *experiment_ids()])
def test_every_id_renders_in_every_mode_without_a_display(name, monkeypatch):
    for variable in ("MPLBACKEND", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    env = gymnasium.make(name, render_mode="rgb_array")
    check_env(env.unwrapped)  # tries every mode
    listed = gymnasium.make(name, render_mode="rgb_array_list")
    _, info = listed.reset(seed=0)
    for _ in range(3):
        *_, info = listed.step(first_action(listed, info))
    frames = listed.render()
    assert len(frames) == 4
    assert {frame.shape for frame in frames} == {(*FRAME_SHAPE, 3)}
    assert all(frame.nbytes < 800_000 for frame in frames)  # as CartPole's


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # moviepy's
@pytest.mark.parametrize("name", ["ringyard/Cluster-v0", *experiment_ids()])
def test_gymnasium_records_short_videos_of_every_id(name, tmp_path):
    pytest.importorskip("moviepy", reason="Gymnasium's RecordVideo and save_video need moviepy")
    single = gymnasium.make(name, render_mode="rgb_array", num_workloads=2)
    env = gymnasium.wrappers.RecordVideo(single, str(tmp_path / "recorded"), video_length=3)
    _, info = env.reset(seed=0)
    for _ in range(4):
        *_, info = env.step(first_action(env, info))
    env.close()
    listed = gymnasium.make(name, render_mode="rgb_array_list", num_workloads=2)
    listed.reset(seed=0)
    gymnasium.utils.save_video.save_video(listed.render(), str(tmp_path / "saved"), video_length=3, fps=10)
    for folder in ("recorded", "saved"):
        [video] = (tmp_path / folder).glob("*.mp4")
        assert video.read_bytes()[4:8] == b"ftyp"


def test_a_window_without_a_display_is_said_once(capsys):
    window = ClusterEnv(replace(experiment("sharing"), num_workloads=2), render_mode="human")
    _, info = window.reset(seed=0)
    window.step(int(info["action_mask"].argmax()))
    assert window.render() is None
    window.close()
    assert capsys.readouterr().err.splitlines() == [
        "ringyard: no display, so pictures are drawn and not shown"
    ]


def test_a_backend_without_its_library_is_refused(monkeypatch):
    from matplotlib import pyplot

    def fails(*args, **options):
        raise ImportError("cannot load backend 'qtagg'")

    monkeypatch.setattr(pyplot, "figure", fails)
    window = ClusterEnv(replace(experiment("sharing"), num_workloads=2), render_mode="human")
    with pytest.raises(
        ConfigurationError, match=r"render_mode='human' cannot open a window: .*qtagg.*MPLBACKEND"
    ):
        window.reset(seed=0)


def colours(pixels):
    return {tuple(one) for one in np.unique(pixels.reshape(-1, 3), axis=0).tolist()}


def test_a_frame_shows_jobs_where_and_when_they_ran(shared):
    """GPU 0 of server 0: job 0 until 60 s, with job 1 above it from 10 s, then job 1 alone until 110 s."""
    history = history_of(shared.state, 0, shared.cluster)
    drawer = FrameDrawer(shared.cluster)
    pixels = drawer.draw(history)
    left, top, right, bottom = 58, 36, 456, 304
    pitch = (bottom - top) / (4 + 2 * 0.9)

    def at(gpu_line, depth, seconds):
        """Colour at a depth (0 to 1) of a line whose top is `gpu_line` lines below the top."""
        y = int(top + pitch * (gpu_line + depth))
        return tuple(pixels[y, int(left + seconds / 110.0 * (right - left))].tolist())

    upper, lower, edge, blank = 0.3, 0.7, 0.01, (255, 255, 255)
    dark, free = (0x15, 0x18, 0x1D), (0xEC, 0xEE, 0xF1)
    first, second = at(0.9, lower, 5), at(0.9, upper, 85)
    assert len({first, second, dark, free, blank}) == 5
    assert at(0.9, upper, 5) == at(0.9, lower, 35) == first
    assert at(0.9, upper, 35) == at(0.9, lower, 85) == second
    assert at(0.9, edge, 5) == dark  # job 0 spans servers
    assert at(0.9, edge, 85) == second
    assert at(1.9, upper, 5) == at(1.9, upper, 85) == free  # GPU 1
    assert at(1.9, upper, 25) not in (first, second, free)  # job 2
    strip = 0.9 - 0.3
    assert at(0.0, strip, 25) == (0xF6, 0xC2, 0x44)  # two rings on the link of server 0
    assert at(0.0, strip, 45) == blank


def test_scaled_frames_show_the_same(shared):
    history = history_of(shared.state, 0, shared.cluster)
    small, large = (FrameDrawer(shared.cluster, scale).draw(history) for scale in (1, 2))
    assert large.shape == (2 * FRAME_SHAPE[0], 2 * FRAME_SHAPE[1], 3)
    chart = np.s_[60:300, 60:450]
    alike = (large[::2, ::2][chart] == small[chart]).all(axis=2).mean()
    assert alike > 0.9


@pytest.mark.parametrize("cluster", [Cluster.homogeneous(1, 1), Cluster.homogeneous(300, 8)])
def test_clusters_of_any_size_fit_into_a_frame(cluster):
    jobs = JobTable.from_columns([0.0, 15.0], [1, 1], [10.0, 10.0])
    sim = simulated(cluster, jobs, {0: (0,), 1: (0,)})
    pixels = FrameDrawer(cluster).draw(history_of(sim.state, 0, cluster))
    assert pixels.shape == (*FRAME_SHAPE, 3)
    assert len(colours(pixels[40:300, 60:450])) >= 2


def test_waiting_jobs_are_counted_at_every_time(shared, full):
    for sim in (shared, full[-1]):
        history = history_of(sim.state, 0, sim.cluster)
        times = np.linspace(history.begins, history.now, 23)
        counted = [len(history.until(seconds).waiting) for seconds in times.tolist()]
        assert history.waiting_at(times).tolist() == counted


def test_without_pillow_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r'needs Pillow.*pip install "ringyard\[render\]"'):
        ClusterEnv(experiment("sharing"), render_mode="rgb_array")


def test_files_are_what_their_names_say(shared, tmp_path):
    history = history_of(shared.state, 0, shared.cluster)
    for name, begins in {"a.png": b"\x89PNG", "a.svg": b"<?xml", "a.pdf": b"%PDF"}.items():
        save_gantt(tmp_path / name, history)
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert list(save_video(tmp_path / "a.gif", history, 3)) == [1, 2, 3]
    assert (tmp_path / "a.gif").read_bytes().startswith(b"GIF89a")


def test_a_moment_with_nothing_can_be_drawn(tmp_path):
    cluster = Cluster.homogeneous(1, 1)
    sim = Simulator(cluster, JobTable.from_columns([0.0], [1], [1.0]), ideal(), segment_rows=8)
    history = history_of(sim.state, 0, cluster)
    save_gantt(tmp_path / "nothing.png", history)
    assert imread(tmp_path / "nothing.png").shape[:2] == (1080, 1920)
    assert FrameDrawer(cluster).draw(history).shape == (*FRAME_SHAPE, 3)
