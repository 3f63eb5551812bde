"""A shard read image by image in the process that trains: seek, read, convert, normalise, one after another."""

import torch

from aisp_mcp.bench import Benchmark, File, Needs, Work


class Shards(Benchmark):
    images, side = 256, 224
    sizes = {"small": {"images": 32, "side": 64}, "large": {"images": 1024}}
    needs = Needs(device="cpu")

    def params(self, rng):
        return {"mean": rng.rand(3, 1, 1), "scale": rng.rand(3, 1, 1).abs() + 0.5}

    def inputs(self, rng):
        """A file of images of bytes (number, colour, row, column), and the order in which they are wanted."""
        images = rng.randint(0, 256, self.images, 3, self.side, self.side, dtype="uint8")
        return {"path": File(images, "images.u8"), "order": rng.permutation(self.images)}

    def work(self):
        values = self.images * 3 * self.side**2
        return Work(flops=3 * values, bytes=5 * values, items=self.images)

    def run(self, path, order, mean, scale):
        size, batch = 3 * self.side**2, []
        with open(path, "rb") as file:
            for number in order.tolist():
                file.seek(number * size)
                image = torch.frombuffer(bytearray(file.read(size)), dtype=torch.uint8).view(3, self.side, self.side)
                batch.append((image.to(mean.device).to(mean.dtype) / 255 - mean) / scale)
        return torch.stack(batch)
