// Package mutations switches client-go's mutation detector on: a program that imports it panics within a second after
// it has modified an object of an informer's cache. client-go reads the setting once, when it is initialized. Go
// initializes packages in the order of their paths once what they import is ready. This one imports os alone, so it
// comes first.
package mutations

import "os"

const setting = "KUBE_CACHE_MUTATION_DETECTOR"

func init() {
	if os.Getenv(setting) == "" {
		_ = os.Setenv(setting, "true") // fails for malformed names only
	}
}
