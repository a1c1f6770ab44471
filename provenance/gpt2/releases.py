"""Saved facts about other releases of transformers: what `repin` found, so that a page can say it offline.

For each release its blob, and every cited place that is not the same there. A test takes the report
anew where the contents are at hand. It holds for one pinned blob only, and is not shown for another.
"""

from dataclasses import dataclass

from provenance.citation import Blob, Package, Pin
from provenance.gpt2.pins import TRANSFORMERS
from provenance.sources.drift import Drift

M, C, V = Drift.MOVED, Drift.CHANGED, Drift.VANISHED

Finding = tuple[str, Drift, int, int]
"""An anchor as it is pinned, what became of it, and its first and last line there (0 where it vanished)."""


@dataclass(frozen=True, slots=True)
class Release:
    """Another release's content of a pinned file; `compared_with` is the blob whose lines are cited."""

    pin: Pin
    blob: Blob
    compared_with: str
    findings: tuple[Finding, ...]

    @property
    def version(self) -> str:
        """The package's version."""
        return self.blob.packages[0].version

    @property
    def valid(self) -> bool:
        """Whether the report is about the content that is cited now."""
        return self.compared_with == self.pin.blobs[0].id


def _release(version: str, blob_id: str, *findings: Finding) -> Release:
    carrying = Package("transformers", version, "transformers/models/gpt2/modeling_gpt2.py")
    return Release(TRANSFORMERS, Blob(blob_id, (carrying,)), _COMPARED_WITH, findings)


_COMPARED_WITH = "da1e9a64c8e0c829bd3f4abe26cdc89d0c3414f4"

RELEASES = (
    _release(
        "4.57.6",
        "ae0786179464115b880ab5d5b4c771292ad5b2db",
        ("eager_attention_forward:attn_weights", C, 114, 114),
        ("eager_attention_forward:if#2..attn_weights#2", C, 135, 138),
        ("eager_attention_forward:attn_weights#3", M, 140, 140),
        ("eager_attention_forward:attn_output", M, 150, 150),
        ("eager_attention_forward:attn_output#2", M, 151, 151),
        ("GPT2Attention.__init__:self.scaling..self.scaling#2", V, 0, 0),
        ("GPT2Attention.__init__:self.c_attn#2..self.c_proj", M, 192, 193),
        ("GPT2Attention.forward:if..curr_past_key_values#3", C, 283, 292),
        ("GPT2Attention.forward:query_states#2..query_states#3", M, 313, 319),
        ("GPT2Attention.forward:key_states#6", C, 326, 328),
        ("GPT2Attention.forward:attn_output#3", M, 357, 357),
        ("GPT2Attention.forward:attn_output#4", M, 358, 358),
        ("GPT2MLP.__init__:self.c_fc..self.c_proj", M, 368, 369),
        ("GPT2MLP.__init__:self.act", M, 370, 370),
        ("GPT2MLP.forward:hidden_states", M, 374, 374),
        ("GPT2MLP.forward:hidden_states#2", M, 375, 375),
        ("GPT2MLP.forward:hidden_states#3", M, 376, 376),
        ("GPT2Block.__init__:self.ln_1", M, 387, 387),
        ("GPT2Block.__init__:self.ln_2", M, 389, 389),
        ("GPT2Block.forward:residual..hidden_states", M, 411, 412),
        ("GPT2Block.forward:hidden_states#2", M, 424, 424),
        ("GPT2Block.forward:residual#3..hidden_states#5", M, 447, 448),
        ("GPT2Block.forward:hidden_states#6", M, 451, 451),
        ("GPT2Model.__init__:self.wte..self.wpe", M, 701, 702),
        ("GPT2Model.__init__:self.ln_f", M, 706, 706),
        ("GPT2Model.forward:input_shape..input_ids", M, 818, 819),
        ("GPT2Model.forward:inputs_embeds", M, 855, 855),
        ("GPT2Model.forward:past_seen_tokens..position_ids#2", C, 858, 863),
        ("GPT2Model.forward:position_embeds", M, 865, 865),
        ("GPT2Model.forward:hidden_states", M, 866, 866),
        ("GPT2Model.forward:causal_mask", C, 873, 880),
        ("GPT2Model.forward:hidden_states#5", M, 951, 951),
        ("GPT2Model.forward:past_key_values#3", M, 958, 958),
        ("GPT2LMHeadModel.__init__:self.lm_head", M, 987, 987),
        ("GPT2LMHeadModel.forward:logits", M, 1092, 1092),
    ),
    _release(
        "5.6.0",
        "7bb2a7cd74af1c0f245e5cadcd5402f02f797293",
        ("GPT2Model.__init__:self.wte..self.wpe", M, 500, 501),
        ("GPT2Model.__init__:self.ln_f", M, 505, 505),
        ("GPT2Model.forward:input_shape..input_ids", M, 556, 557),
        ("GPT2Model.forward:inputs_embeds", M, 577, 577),
        ("GPT2Model.forward:past_seen_tokens..position_ids#2", M, 580, 582),
        ("GPT2Model.forward:position_embeds", M, 584, 584),
        ("GPT2Model.forward:hidden_states", M, 585, 585),
        ("GPT2Model.forward:causal_mask", M, 591, 597),
        ("GPT2Model.forward:hidden_states#5", M, 628, 628),
        ("GPT2Model.forward:past_key_values#3", M, 632, 632),
        ("GPT2LMHeadModel.__init__:self.lm_head", M, 651, 651),
        ("GPT2LMHeadModel.forward:logits", M, 706, 706),
    ),
    _release(
        "5.14.1",
        "cde95dc7bc003abaef647044aefcccf11bd28f72",
        ("GPT2Model.__init__:self.wte..self.wpe", M, 493, 494),
        ("GPT2Model.__init__:self.ln_f", M, 498, 498),
        ("GPT2Model.forward:input_shape..input_ids", M, 549, 550),
        ("GPT2Model.forward:inputs_embeds", M, 570, 570),
        ("GPT2Model.forward:past_seen_tokens..position_ids#2", M, 573, 575),
        ("GPT2Model.forward:position_embeds", M, 577, 577),
        ("GPT2Model.forward:hidden_states", M, 578, 578),
        ("GPT2Model.forward:causal_mask", M, 584, 590),
        ("GPT2Model.forward:hidden_states#5", M, 621, 621),
        ("GPT2Model.forward:past_key_values#3", M, 625, 625),
        ("GPT2LMHeadModel.__init__:self.lm_head", M, 644, 644),
        ("GPT2LMHeadModel.forward:logits", M, 699, 699),
    ),
    _release(
        "5.24.0",
        "2479b04f47bd54f409bc8a605b517e29684a16cf",
        ("eager_attention_forward:attn_weights", M, 59, 59),
        ("eager_attention_forward:if#2..attn_weights#2", M, 61, 62),
        ("eager_attention_forward:attn_weights#3", M, 64, 64),
        ("eager_attention_forward:attn_output", M, 70, 70),
        ("eager_attention_forward:attn_output#2", M, 71, 71),
        ("GPT2Attention.__init__:self.scaling..self.scaling#2", M, 97, 99),
        ("GPT2Attention.__init__:self.c_attn#2..self.c_proj", M, 107, 108),
        ("GPT2Attention.forward:if..curr_past_key_values#3", C, 157, 166),
        ("GPT2Attention.forward:query_states#2..query_states#3", M, 187, 193),
        ("GPT2Attention.forward:key_states#6", C, 198, 198),
        ("GPT2Attention.forward:attn_output#3", M, 224, 224),
        ("GPT2Attention.forward:attn_output#4", M, 225, 225),
        ("GPT2MLP.__init__:self.c_fc..self.c_proj", M, 235, 236),
        ("GPT2MLP.__init__:self.act", M, 237, 237),
        ("GPT2MLP.forward:hidden_states", M, 241, 241),
        ("GPT2MLP.forward:hidden_states#2", M, 242, 242),
        ("GPT2MLP.forward:hidden_states#3", M, 243, 243),
        ("GPT2Block.__init__:self.ln_1", M, 254, 254),
        ("GPT2Block.__init__:self.ln_2", M, 256, 256),
        ("GPT2Block.forward:residual..hidden_states", M, 275, 276),
        ("GPT2Block.forward:hidden_states#2", M, 285, 285),
        ("GPT2Block.forward:residual#3..hidden_states#5", M, 306, 307),
        ("GPT2Block.forward:hidden_states#6", M, 310, 310),
        ("GPT2Model.__init__:self.wte..self.wpe", M, 491, 492),
        ("GPT2Model.__init__:self.ln_f", M, 496, 496),
        ("GPT2Model.forward:past_seen_tokens..position_ids#2", C, 572, 574),
        ("GPT2Model.forward:causal_mask", C, 583, 589),
        ("GPT2Model.forward:hidden_states#5", M, 619, 619),
        ("GPT2Model.forward:past_key_values#3", C, 623, 623),
        ("GPT2LMHeadModel.__init__:self.lm_head", M, 642, 642),
        ("GPT2LMHeadModel.forward:logits", C, 698, 698),
    ),
)
