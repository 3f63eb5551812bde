"""Images prepared one by one, as a dataset's __getitem__ does: whole image to float, normalise, then flip and crop."""

import torch

from aisp_mcp.bench import Benchmark, Needs, Work

CROP, MEAN, DEVIATION = 3 / 4, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Augment(Benchmark):
    images, size = 256, 256
    sizes = {"small": {"images": 32, "size": 64}, "large": {"images": 1024}}
    needs = Needs(device="cpu")

    def inputs(self, rng):
        """Images of bytes (number, row, column, colour), the corner of each crop, and which images are mirrored."""
        return {
            "images": rng.randint(0, 256, self.images, self.size, self.size, 3, dtype="uint8"),
            "corners": rng.randint(0, self.size - int(CROP * self.size) + 1, self.images, 2),
            "mirrored": rng.bernoulli(0.5, self.images),
        }

    def work(self):
        kept = self.images * int(CROP * self.size) ** 2 * 3
        read = max(kept, self.images * self.size**2 * 3)  # whole images arrive, whatever is cut out of them
        return Work(flops=2 * kept, bytes=read + 4 * kept + 17 * self.images, items=self.images)

    def run(self, images, corners, mirrored):
        """Normalised crops (number, colour, row, column)."""
        size = int(CROP * images.shape[1])
        mean, deviation = (torch.tensor(values, device=images.device)[:, None, None] for values in (MEAN, DEVIATION))
        batch = []
        for image, (top, left), flip in zip(images, corners.tolist(), mirrored.tolist(), strict=True):
            image = (image.permute(2, 0, 1).float() / 255 - mean) / deviation
            image = image.flip(2) if flip else image
            batch.append(image[:, top : top + size, left : left + size])
        return torch.stack(batch)
