"""What a backend of fused loops is asked for."""

import pytest
import torch

from momentalign.discrepancies._cpu import CPUBackend, differentiable_terms
from momentalign.discrepancies.central_moment import stacked_terms


class Told(CPUBackend):
    """Compiled loops that remember what they were told."""

    def terms(self, source, target, order, scale, *, ahead=(False, False)):
        self.ahead = tuple(ahead)
        return super().terms(source, target, order, scale, ahead=ahead)

    def gradients(self, samples, statistics, upstream, order, scale, needed):
        self.needed = tuple(needed)
        self.found = super().gradients(samples, statistics, upstream, order, scale, needed)
        return self.found


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("summed", [True, False])
def test_a_backend_is_told_which_gradients_will_be_asked_for(pair, needed, summed):
    samples = [sample.requires_grad_(need) for sample, need in zip(pair(), needed, strict=True)]
    backend = Told()
    found = differentiable_terms(backend, *samples, 3, scale=2.0, summed=summed, plain=stacked_terms)
    torch.testing.assert_close(found.sum(), stacked_terms(*samples, 3, scale=2.0).sum(), rtol=1e-12, atol=0.0)
    assert backend.ahead == (needed if summed else (False, False))
    found.sum().backward()
    assert backend.needed == needed
    assert [slope is not None for slope in backend.found] == list(needed)


def test_without_gradients_none_are_prepared(pair):
    backend = Told()
    source, target = pair(grad=True)
    with torch.no_grad():
        value = differentiable_terms(backend, source, target, 3, scale=2.0, summed=True, plain=stacked_terms)
    assert not value.requires_grad
    assert backend.ahead == (False, False)
    terms = differentiable_terms(
        backend, source.detach(), target.detach(), 3, scale=2.0, summed=False, plain=stacked_terms
    )
    torch.testing.assert_close(terms, stacked_terms(source, target, 3, scale=2.0).detach(), rtol=1e-12, atol=0.0)
