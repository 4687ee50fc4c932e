"""An algorithm that learns nothing and writes everything down: the engine's bookkeeping made visible."""

import equinox as eqx
import jax.numpy as jnp

from headstart.core import Algorithm, ClientResult, Cost, Down, Server


class Scribe(Algorithm):
    """Clients remember how often they took part and what they drew last; the server, the mean of their draws."""

    batch_size: int = eqx.field(static=True, default=3)

    def init_server(self, params):
        return Server(params, jnp.zeros((), jnp.int32))

    def init_client(self, params):
        return {"rounds": jnp.zeros((), jnp.int32), "drawn": jnp.zeros((self.batch_size, *params.shape))}

    def broadcast(self, server, key):
        return Down(server.params, 0.0)

    def client_update(self, loss, down, state, client, key):
        drawn = client.sample(key, self.batch_size)
        state = {"rounds": state["rounds"] + 1, "drawn": drawn}
        return ClientResult(state, jnp.mean(drawn, axis=0), {"loss": loss(down.params, drawn)})

    def server_update(self, server, mean_up):
        return Server(mean_up, server.round + 1)

    def personalize(self, loss, down, state, support, key, steps, size):
        return down.params + steps * state["rounds"]

    def cost(self):
        return Cost(gradients=0, products=0, batches={self.batch_size: 1})
