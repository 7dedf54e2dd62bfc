package mirror

import "k8s.io/apimachinery/pkg/types"

// key names a target: its namespace, and the name of the sources that contend for it. It also names one source or copy.
type key = types.NamespacedName
