"""The Gymnasium environments: observations, actions, rewards and the compiled step."""
