"""The counted resources of servers and jobs, by their position in `ringyard.resources.RESOURCES`."""

from ringyard.compiled import field_reader, field_writer
from ringyard.resources import RESOURCES
from ringyard.state.records import Job, Server

__all__ = ["asked_of", "free_on", "held_of", "set_free", "set_held", "there_on"]

#: what each worker of a job holds, or asks for
held_of = field_reader(Job, [one.per_worker for one in RESOURCES])
set_held = field_writer(Job, [one.per_worker for one in RESOURCES])
asked_of = field_reader(Job, [one.asked for one in RESOURCES])
#: what a server has that no job holds, or in all
free_on = field_reader(Server, [one.free for one in RESOURCES])
set_free = field_writer(Server, [one.free for one in RESOURCES])
there_on = field_reader(Server, [one.there for one in RESOURCES])
