"""Training under differential privacy: what it promises, and what it costs.

Updates are clipped and the server adds noise, so that whatever one client's data were, the model would be about as
likely. Run it with ``python examples/private_training.py``; it takes about a minute.
"""

import headstart as hs
from headstart.wire import noise_for, privacy_spent, wire

CLIENTS, HELD_OUT = 150, 30


def main(rounds: int = 40, clients: int = CLIENTS) -> dict[str, float]:
    """The same training without noise, and with enough for epsilon = 8."""
    federation = hs.data.mnist_small(clients=clients, held_out=HELD_OUT, a=4, test_a=2)
    problem = hs.Classification(hs.Linear(inputs=(28, 28), outputs=10))
    algorithm = hs.per_fedavg(inner_lr=0.1, outer_lr=0.1, local_steps=4, batch_size=10)
    trained, delta = federation.trained, 1e-5
    noise = noise_for(epsilon=8, delta=delta, rounds=rounds, cohort=trained, clients=trained)
    private = wire(clip=0.5, noise=noise, delta=delta)
    print(f"{noise:.2f} times the clip, which is {privacy_spent(private, rounds, cohort=trained, clients=trained)}")
    found = {}
    for name, between in {"as they are": None, "private": private}.items():
        result = hs.train(algorithm, problem, federation, rounds=rounds, cohort=1.0, wire=between)
        found[name] = result.final("accuracy", steps=1, group="held-out")["mean"]
        print(f"updates {name}: accuracy {found[name]:.1%} of new clients after one step")
    return found


if __name__ == "__main__":
    main()
