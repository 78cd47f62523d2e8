"""SJF-BCO (MobiHoc 2022) and the planners of its experiment."""
