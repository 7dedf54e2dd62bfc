package model

import corev1 "k8s.io/api/core/v1"

// Counts returns how many targets of each source are in each state when all is quiet, by the source and the state with a space
// between: what `kubectl mirror status` says, and in all mirror_copies.
func (f Flags) Counts(s State, verdicts []Verdict) map[string]int {
	counts := map[string]int{}
	sources := f.sources(s)
	for _, v := range verdicts {
		owner, state := f.stateOf(s, v)
		if state == "" {
			continue
		}
		counts[owner.String()+" "+state]++
		if v.Winner == nil {
			continue
		}
		for _, source := range sources[v.Name] {
			if loser := KeyOf(source); f.Claims(source, s.Namespaces[v.Namespace]) && (loser != owner || state == "failed") {
				counts[loser.String()+" superseded"]++
			}
		}
	}
	return counts
}

// stateOf returns the state of what is in a place as the verdict allows, and the source that it counts for.
func (f Flags) stateOf(s State, v Verdict) (owner Key, state string) {
	have := s.ConfigMaps[v.Key]
	if have == nil {
		return owner, ""
	}
	owner, ours := f.Ours(have)
	frozen := ours && f.frozen(s.ConfigMaps[owner])
	if v.Winner != nil && !frozen {
		owner = KeyOf(v.Winner)
	}
	switch {
	case v.Winner == nil && (!ours || !Labelled(have)):
		return owner, "" // nobody has to do with it
	case frozen:
		return owner, "failed"
	case !ours:
		return owner, "foreign"
	case have.DeletionTimestamp != nil:
		return owner, "pending"
	case v.Winner != nil:
		return owner, "synced"
	}
	return owner, "out_of_scope"
}

func (f Flags) frozen(source *corev1.ConfigMap) bool {
	return source != nil && f.IsSource(source) && Frozen(source)
}
