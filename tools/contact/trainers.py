"""Ask verl and OpenRLHF for a judge's rewards, each through its own classes; print them beside the judge's scores.

    PYTHONPATH=. python tools/contact/trainers.py verl
    PYTHONPATH=. python tools/contact/trainers.py openrlhf

Each needs its package beside vjudge (`pip install --no-deps verl`, then what its import asks for). No policy is
trained: the answers are those of Scenes, and only what lies between a rollout and its reward runs.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

import vjudge as vj

REWARD_FILE = """
import vjudge as vj
from vjudge import preference

items = vj.load_collection("scenes", split="test", limit=8)
reward = preference.reward_function(vj.load_judge("tiny", device="cpu"), rows=items, missing=0.0)
compute_score = reward.verl


def reward_func(queries, prompts, labels):
    return reward.openrlhf(queries, prompts, labels, end="</s>")
"""


def rewards_by_verl(file, items, tokenizer):
    """Rewards by each of verl's managers: the file is loaded as `custom_reward_function` is."""
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager as Loop
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.workers.reward_manager.batch import BatchRewardManager
    from verl.workers.reward_manager.naive import NaiveRewardManager

    settings = {"path": str(file), "name": "compute_score"}
    function = get_custom_reward_fn(
        OmegaConf.create({"reward": {"custom_reward_function": settings}})
    )
    responses = [torch.tensor(ids) for ids in tokenizer(list(items["response"])).input_ids]
    padded = torch.nn.utils.rnn.pad_sequence(responses, batch_first=True)  # (items, longest)
    prompts = torch.ones(len(items), 1, dtype=torch.long)
    lengths = torch.tensor([len(ids) for ids in responses])
    answered = torch.arange(padded.shape[1]) < lengths[:, None]
    tensors = {
        "prompts": prompts,
        "responses": padded,
        "attention_mask": torch.cat([prompts, answered.long()], dim=1),
    }
    columns = {
        "data_source": np.array(["scenes"] * len(items), dtype=object),
        "reward_model": np.array([{"ground_truth": id} for id in items["id"]], dtype=object),
        "extra_info": np.array([{} for _ in items], dtype=object),
    }
    data = DataProto(TensorDict(tensors, batch_size=[len(items)]), columns)
    rewards = {}
    for manager in (NaiveRewardManager, BatchRewardManager):
        table = manager(tokenizer, 0, compute_score=function)(
            data
        )  # the reward is at the last token
        rewards[manager.__name__] = table.sum(dim=1).tolist()

    async def loop():
        manager = Loop(OmegaConf.create({}), tokenizer, function)
        answers = [await manager.run_single(data[i : i + 1]) for i in range(len(items))]
        return [answer["reward_score"] for answer in answers]

    return rewards | {"reward loop": asyncio.run(loop())}


def rewards_by_openrlhf(file, items, tokenizer):
    """Rewards by OpenRLHF's executor of one turn, whose engine gives the items' own responses."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(str(file))
    sampling = SimpleNamespace(max_tokens=200, logprobs=None)

    async def reward(row):
        ids = tokenizer(row["response"], add_special_tokens=False).input_ids
        written = SimpleNamespace(
            token_ids=[*ids, tokenizer.eos_token_id], finish_reason="stop", logprobs=None
        )

        async def generate(ids, params, multi_modal_data=None):
            return SimpleNamespace(outputs=[written])

        prompt = f"USER: {row['instruction']} ASSISTANT:"
        engine = SimpleNamespace(generate=generate)
        output = await executor.execute(prompt, row["id"], sampling, 2000, tokenizer, engine)
        return output["reward"].item()

    return {"SingleTurnAgentExecutor": [asyncio.run(reward(row)) for row in items]}


def main():
    judge = vj.load_judge("tiny", device="cpu")
    items = vj.load_collection("scenes", split="test", limit=8)
    scores = judge.grade(items, progress=False)["expected_score"].to_numpy()
    trainers = {"verl": rewards_by_verl, "openrlhf": rewards_by_openrlhf}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rewards.py"
        file.write_text(REWARD_FILE)
        rewards = trainers[sys.argv[1]](file, items, judge.engine.model.tokenizer)
    for name, values in rewards.items():
        print(name, np.round(values, 4), "largest difference", np.abs(values - scores).max())


if __name__ == "__main__":
    main()
