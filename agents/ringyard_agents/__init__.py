"""PPO agents on Ringyard: networks, training, evaluation, comparison and TensorBoard."""
