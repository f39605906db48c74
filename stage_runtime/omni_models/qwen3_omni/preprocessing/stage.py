"""Building the preprocessing stage."""

from __future__ import annotations

from dataclasses import dataclass, field

from omni_models.media.download import Downloader
from omni_models.media.limits import FetchPolicy, MediaLimits
from omni_models.media.videos import Sampling
from omni_models.qwen3_omni.checkpoint_folder import CheckpointFolder, torch_dtype
from omni_models.qwen3_omni.encoders.audio import AudioConfig
from omni_models.qwen3_omni.preprocessing.conversation import ConversationReader
from omni_models.qwen3_omni.preprocessing.features import Features
from omni_models.qwen3_omni.preprocessing.media_loading import MediaLoading
from omni_models.qwen3_omni.preprocessing.preparation import Preparation
from omni_models.qwen3_omni.preprocessing.wishes import VideoSettings, WishReader
from omni_models.structured.formats import checked_format
from omni_runtime.simple_scheduler import SimpleScheduler

__all__ = [
    "FetchPolicy",
    "MediaLimits",
    "PreprocessingSettings",
    "Sampling",
    "VideoSettings",
    "build_preparation",
    "build_preprocessing",
]


@dataclass(frozen=True, slots=True)
class PreprocessingSettings:
    """Arguments of `factories.create_preprocessing` that the stage reads; see there."""

    model_path: str
    max_seq_len: int | None = None
    max_concurrency: int = 16
    speech_enabled: bool = True
    video: VideoSettings = field(default_factory=VideoSettings)
    limits: MediaLimits = field(default_factory=MediaLimits)
    policy: FetchPolicy = field(default_factory=FetchPolicy)
    tool_call_parser: str | None = None


def build_preprocessing(settings: PreprocessingSettings) -> SimpleScheduler:
    """Load the processor and return the stage's scheduler."""
    return SimpleScheduler(build_preparation(settings), max_concurrency=settings.max_concurrency)


def build_preparation(settings: PreprocessingSettings) -> Preparation:
    """Load the processor and return what the stage does with one request."""
    checkpoint = CheckpointFolder.open(settings.model_path)
    thinker, talker = checkpoint.config["thinker_config"], checkpoint.config["talker_config"]
    features = Features(checkpoint.path, torch_dtype(None, checkpoint.config))
    downloader = Downloader(settings.limits, settings.policy)
    merge = thinker["vision_config"]["spatial_merge_size"]
    return Preparation(
        wishes=WishReader(
            talker["speaker_id"],
            settings.speech_enabled,
            settings.video,
            checked_format(settings.tool_call_parser),
        ),
        conversations=ConversationReader(settings.limits, settings.policy),
        features=features,
        media=MediaLoading(features, downloader, settings.limits, merge),
        audio=AudioConfig.parse(thinker["audio_config"]),
        context=settings.max_seq_len or thinker["text_config"]["max_position_embeddings"],
    )
