package drafter

import (
	"errors"
	"fmt"

	"quickdraft/kvcache"
)

// Keeper is implemented by drafters that hold keys and values of their own. A saved sequence takes these along, so that
// drafting goes on where the sequence is restored without reading it anew.
type Keeper interface {
	// Keep returns a sequence for each model that drafts, holding ids as the model numbers tokens; what was not known of
	// them is computed. A model that cannot take ids has none. The caller frees the sequences.
	Keep(ids []int32) ([]kvcache.Saved, error)
	// Recall takes what kvcache.Save wrote of Keep's sequences: sessions of texts that begin so have nothing to catch up
	// with. A file in which another draft left its own, or none did, is no error: the text is read when it is drafted for.
	Recall(path string) error
}

// adopt makes an empty lane hold what the cache knows of want's beginning.
func (l *lane) adopt(want []int32) {
	if len(want) > 1 && l.seq.Len() == 0 {
		l.fed = append(l.fed[:0], want[:l.seq.Adopt(want[:len(want)-1])]...)
	}
}

// keep reads ids into a new sequence; nil when the model cannot take them.
func (r *runner) keep(cache *kvcache.Cache, ids []int32) ([]kvcache.Saved, error) {
	l := &lane{seq: cache.NewSeq()}
	l.sync(ids)
	for !l.stopped && l.seq.Len() < len(ids) {
		if _, err := r.step([]*lane{l}); err != nil {
			l.seq.Free()
			return nil, err
		}
	}
	if l.stopped {
		l.seq.Free()
		return nil, nil
	}
	return []kvcache.Saved{{Seq: l.seq, Fingerprint: r.m.Fingerprint(), IDs: l.fed}}, nil
}

// recall puts what a file has of the model into its cache.
func (r *runner) recall(cache *kvcache.Cache, path string) error {
	seq, ids, err := cache.Restore(path, r.m.Fingerprint())
	switch {
	case errors.Is(err, kvcache.ErrForeign):
		return nil
	case err != nil:
		return fmt.Errorf("draft: %w", err)
	}
	seq.Release(ids)
	return nil
}

// Keep reads ids into the draft model.
func (d *Model) Keep(ids []int32) ([]kvcache.Saved, error) {
	if tr := d.o.Translation; tr != nil {
		ids = tr.toDraft(nil, ids)
	}
	return d.runner.keep(d.cache, ids)
}

// Recall gives the draft model's cache what the file has of it.
func (d *Model) Recall(path string) error { return d.runner.recall(d.cache, path) }

// Keep reads ids into the bigger model and what the small drafter has.
func (d *Hierarchical) Keep(ids []int32) ([]kvcache.Saved, error) {
	parts, err := d.runner.keep(d.cache, ids)
	if k, ok := d.small.(Keeper); ok && err == nil {
		return keepMore(parts, k, ids)
	}
	return parts, err
}

// Recall gives both models what the file has of them.
func (d *Hierarchical) Recall(path string) error {
	err := d.runner.recall(d.cache, path)
	if k, ok := d.small.(Keeper); ok && err == nil {
		err = k.Recall(path)
	}
	return err
}

// Keep asks every part that keeps anything.
func (d *Union) Keep(ids []int32) (parts []kvcache.Saved, err error) {
	for _, part := range d.drafters {
		if k, ok := part.(Keeper); ok {
			if parts, err = keepMore(parts, k, ids); err != nil {
				return nil, err
			}
		}
	}
	return parts, nil
}

// Recall shows the file to every part that keeps anything.
func (d *Union) Recall(path string) error {
	for _, part := range d.drafters {
		if k, ok := part.(Keeper); ok {
			if err := k.Recall(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepMore appends what k keeps, and frees all when it fails.
func keepMore(parts []kvcache.Saved, k Keeper, ids []int32) ([]kvcache.Saved, error) {
	more, err := k.Keep(ids)
	if parts = append(parts, more...); err != nil {
		FreeSaved(parts)
		return nil, err
	}
	return parts, nil
}

// FreeSaved frees the sequences that Keep returned.
func FreeSaved(parts []kvcache.Saved) {
	for _, p := range parts {
		p.Seq.Free()
	}
}
