package drafter

import "quickdraft/kvcache"

// Keeper is implemented by drafters that hold keys and values of their own. A saved sequence takes these along, so that
// drafting goes on where the sequence is restored without reading it anew.
type Keeper interface {
	// Keep returns a sequence for each model that drafts, holding ids as the model numbers tokens; what was not known of
	// them is computed. A model that cannot take ids has none. The caller frees the sequences.
	Keep(ids []int32) ([]kvcache.Saved, error)
	// Known is how many tokens at the beginning of ids a new session would not have to read, since the caches hold them: those that
	// all models know.
	Known(ids []int32) int
	// Places are the caches of those models: what kvcache.Load finds for them becomes known by Seq.Release, and sessions of
	// texts that begin so have nothing to catch up with.
	Places() []kvcache.Place
}

// adopt makes an empty lane hold what the cache knows of want's beginning.
func (l *lane) adopt(want []int32) {
	if len(want) > 1 && l.seq.Len() == 0 {
		l.fed = append(l.fed[:0], want[:l.seq.Adopt(want[:len(want)-1])]...)
	}
}

// known is how many tokens at the beginning of ids the cache holds.
func (r *runner) known(cache *kvcache.Cache, ids []int32) int {
	if len(ids) < 2 {
		return 0
	}
	seq := cache.NewSeq()
	defer seq.Free()
	return seq.Adopt(ids[:len(ids)-1])
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

// Keep reads ids into the draft model.
func (d *Model) Keep(ids []int32) ([]kvcache.Saved, error) {
	if tr := d.o.Translation; tr != nil {
		ids = tr.toDraft(nil, ids)
	}
	return d.runner.keep(d.cache, ids)
}

// Known asks the draft model's cache; of a text of another vocabulary it says as large a part as is known of its translation.
func (d *Model) Known(ids []int32) int {
	if tr := d.o.Translation; tr != nil {
		own := tr.toDraft(nil, ids)
		return d.runner.known(d.cache, own) * len(ids) / max(1, len(own))
	}
	return d.runner.known(d.cache, ids)
}

// Places is the draft model's cache.
func (d *Model) Places() []kvcache.Place {
	return []kvcache.Place{{Cache: d.cache, Fingerprint: d.runner.m.Fingerprint()}}
}

// Keep reads ids into the bigger model and what the small drafter has.
func (d *Hierarchical) Keep(ids []int32) ([]kvcache.Saved, error) {
	parts, err := d.runner.keep(d.cache, ids)
	if k, ok := d.small.(Keeper); ok && err == nil {
		return keepMore(parts, k, ids)
	}
	return parts, err
}

// Known asks both models' caches.
func (d *Hierarchical) Known(ids []int32) int {
	n := d.runner.known(d.cache, ids)
	if k, ok := d.small.(Keeper); ok {
		n = min(n, k.Known(ids))
	}
	return n
}

// Places are the caches of both models.
func (d *Hierarchical) Places() []kvcache.Place {
	places := []kvcache.Place{{Cache: d.cache, Fingerprint: d.runner.m.Fingerprint()}}
	if k, ok := d.small.(Keeper); ok {
		places = append(places, k.Places()...)
	}
	return places
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

// Known asks every part that keeps anything.
func (d *Union) Known(ids []int32) int {
	n := len(ids)
	for _, part := range d.drafters {
		if k, ok := part.(Keeper); ok {
			n = min(n, k.Known(ids))
		}
	}
	return n
}

// Places are those of all parts.
func (d *Union) Places() (places []kvcache.Place) {
	for _, part := range d.drafters {
		if k, ok := part.(Keeper); ok {
			places = append(places, k.Places()...)
		}
	}
	return places
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
