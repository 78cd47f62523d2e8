"""The decision process over the simulator: observations, actions, rewards and the Gymnasium faces."""
