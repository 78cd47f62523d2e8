"""An MLP policy that computes its hidden layers in bfloat16: opt-in, faster on processors that have it."""

import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.torch_layers import MlpExtractor
from torch import Tensor, nn

__all__ = ["ReducedPrecisionMlpPolicy"]


class _Bfloat16(nn.Module):
    """An `MlpExtractor` under autocast; its outputs are float32 again."""

    def __init__(self, extractor: MlpExtractor) -> None:
        super().__init__()
        self.extractor = extractor
        self.latent_dim_pi = extractor.latent_dim_pi
        self.latent_dim_vf = extractor.latent_dim_vf

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(actor, critic) latents."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """Latent of the actor."""
        with torch.autocast("cpu", torch.bfloat16):
            return self.extractor.forward_actor(features).float()

    def forward_critic(self, features: Tensor) -> Tensor:
        """Latent of the critic."""
        with torch.autocast("cpu", torch.bfloat16):
            return self.extractor.forward_critic(features).float()


class ReducedPrecisionMlpPolicy(MaskableActorCriticPolicy):
    """sb3-contrib's maskable MLP policy with bfloat16 hidden layers; heads and optimiser stay float32."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        assert isinstance(self.mlp_extractor, MlpExtractor)
        self.mlp_extractor = _Bfloat16(self.mlp_extractor)  # type: ignore[assignment]
