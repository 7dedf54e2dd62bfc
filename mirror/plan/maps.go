package plan

import (
	"maps"
	"slices"
)

// only returns the entries of m with these keys; nil if there are none.
func only(m map[string]string, keys ...string) (out map[string]string) {
	for _, k := range keys {
		if v, ok := m[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// without removes the entries of m with these keys.
func without(m map[string]string, keys []string) {
	maps.DeleteFunc(m, func(key, _ string) bool { return slices.Contains(keys, key) })
}

// containsAll reports whether have has all entries of want.
func containsAll(have, want map[string]string) bool {
	return maps.Equal(only(have, slices.Collect(maps.Keys(want))...), want)
}
