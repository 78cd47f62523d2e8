"""SJF-BCO (Yu, Ji, Rajan, Liu; MobiHoc 2022) and the planners to which its paper compares it."""
