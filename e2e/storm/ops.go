package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// operation is something that a user does.
type operation struct {
	// do returns errMiss if there was nothing to do it to.
	do func(ctx context.Context, s *storm, st step) error
	// of chooses among the ConfigMaps to which it can be done instead; nil if there is no choice.
	of which
	// makes is set for what makes a namespace, free for what makes a ConfigMap: it can make another one instead.
	makes, free bool
}

// which chooses objects by what they are at the moment.
type which func(*corev1.ConfigMap) bool

// Objects by whose they are. The instance is the same all the time, so flags have no part in it.
var (
	source   which = model.Asks
	ours     which = func(cm *corev1.ConfigMap) bool { _, ok := instance.Ours(cm); return ok }
	foreign  which = func(cm *corev1.ConfigMap) bool { return !source(cm) && !ours(cm) }
	mutable  which = func(cm *corev1.ConfigMap) bool { return !immutable(cm) }
	narrowed which = func(cm *corev1.ConfigMap) bool {
		return slices.ContainsFunc(narrowings, func(k string) bool { return cm.Annotations[k] != "" })
	}
	held     which = func(cm *corev1.ConfigMap) bool { return len(cm.Finalizers) > 0 }
	anything which = func(*corev1.ConfigMap) bool { return true }
)

func immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

// and chooses what both choose.
func (a which) and(b which) which { return func(cm *corev1.ConfigMap) bool { return a(cm) && b(cm) } }

// instance are flags that tell whose an object is.
var instance = model.Flags{Instance: "default"}

// operations are all there are, by their kinds.
var operations map[string]*operation

func init() { // for they refer to parseStep, which refers to them
	operations = map[string]*operation{
		"create-source":  {do: put, free: true},
		"edit-source":    edit(source.and(mutable)),
		"replace-source": replace(source),
		"delete-source":  remove(source),
		"label-source":   edit(foreign),
		"unlabel-source": edit(source),
		"narrow-source":  edit(source),
		"mend-source":    edit(source.and(narrowed)),
		"mark-source":    edit(source),
		"freeze-source":  edit(source.and(mutable)),

		"edit-copy":    edit(ours.and(mutable)),
		"delete-copy":  remove(ours),
		"replace-copy": replace(ours),
		"usurp-copy":   replace(ours), // by an object without our marks
		"strip-label":  edit(ours),
		"pose-source":  edit(ours), // the label of a source on a copy
		"release-copy": edit(ours), // our annotations are stripped
		"promote-copy": edit(ours), // made a source
		"freeze-copy":  edit(ours.and(mutable)),
		"finalize":     edit(anything),
		"unfinalize":   edit(held),
		"forge":        {do: putOrEdit},

		"create-foreign": {do: put},
		"edit-foreign":   edit(foreign.and(mutable)),
		"adopt-foreign":  edit(foreign),
		"delete-foreign": remove(foreign),

		"create-namespace":   {do: createNamespace, makes: true},
		"delete-namespace":   {do: deleteNamespace},
		"recreate-namespace": {do: recreateNamespace},
		"label-namespace":    {do: labelNamespace},
	}
}

// keyOf reads the key of a ConfigMap.
func keyOf(on string) model.Key {
	namespace, name, _ := strings.Cut(on, "/")
	return model.Key{Namespace: namespace, Name: name}
}

// finalizer is one of nobody who would ever remove it.
const finalizer = "example.com/storm"

// Arguments of operations on ConfigMaps.
const (
	contentArg     = "content"         // a token for fill
	extraArg       = "extra"           // a key to add to data
	cutArg         = "cut"             // if set, one key is taken from data
	labelArg       = "label."          // and a key
	annotationArg  = "annotation."     // and a key
	dropLabel      = "drop-label"      // a key
	dropAnnotation = "drop-annotation" // a key
	immutableArg   = "immutable"       // if set
	finalizerArg   = "finalizer"       // "on" or "off"
	pauseArg       = "pause"           // between a deletion and a creation
	selfValue      = "{self}"          // in the value of an annotation: the key of the object
	nameValue      = "{name}"          // likewise: its name
)

// shape makes cm what the arguments say, and reports whether that changed anything.
func (st step) shape(cm *corev1.ConfigMap) bool {
	before := cm.DeepCopy()
	if token := st.args.Get(contentArg); token != "" {
		fill(cm, token)
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, contentMark, token)
	}
	if k := st.args.Get(extraArg); k != "" {
		delete(cm.BinaryData, k)
		set(&cm.Data, k, "extra")
	}
	if keys := slices.Sorted(maps.Keys(cm.Data)); st.args.Has(cutArg) && len(keys) > 0 {
		delete(cm.Data, keys[0])
	}
	for _, k := range st.args[dropLabel] {
		delete(cm.Labels, k)
	}
	for _, k := range st.args[dropAnnotation] {
		delete(cm.Annotations, k)
	}
	values := strings.NewReplacer(selfValue, model.KeyOf(cm).String(), nameValue, cm.Name)
	for arg, value := range st.args {
		if k, ok := strings.CutPrefix(arg, labelArg); ok {
			metav1.SetMetaDataLabel(&cm.ObjectMeta, k, value[0])
		}
		if k, ok := strings.CutPrefix(arg, annotationArg); ok {
			metav1.SetMetaDataAnnotation(&cm.ObjectMeta, k, values.Replace(value[0]))
		}
	}
	if st.args.Has(immutableArg) {
		yes := true
		cm.Immutable = &yes
	}
	switch st.args.Get(finalizerArg) {
	case "on":
		cm.Finalizers = []string{finalizer}
	case "off":
		cm.Finalizers = nil
	}
	return !equal(before, cm)
}

// equal reports whether two states of an object differ in nothing that users write.
func equal(a, b *corev1.ConfigMap) bool {
	return maps.Equal(a.Data, b.Data) && maps.EqualFunc(a.BinaryData, b.BinaryData, slices.Equal) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		(a.Immutable == nil) == (b.Immutable == nil) && slices.Equal(a.Finalizers, b.Finalizers)
}

// put creates an object.
func put(ctx context.Context, s *storm, st step) error {
	key := keyOf(st.on)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	st.shape(cm)
	return s.users.create(ctx, cm)
}

// edit changes an object of the kind.
func edit(of which) *operation {
	return &operation{of: of, do: func(ctx context.Context, s *storm, st step) error {
		return s.users.edit(ctx, keyOf(st.on), func(cm *corev1.ConfigMap) bool { return of(cm) && st.shape(cm) })
	}}
}

// putOrEdit changes what is there, whatever it is, or creates it.
func putOrEdit(ctx context.Context, s *storm, st step) error {
	if err := edit(anything).do(ctx, s, st); !errors.Is(err, errMiss) {
		return err
	}
	return put(ctx, s, st)
}

// remove deletes an object of the kind.
func remove(of which) *operation {
	return &operation{of: of, do: func(ctx context.Context, s *storm, st step) error {
		_, err := s.users.delete(ctx, keyOf(st.on), of)
		return err
	}}
}

// replace deletes an object of the kind and creates it anew, as tools do that cannot change one, with the metadata
// that it had.
func replace(of which) *operation {
	return &operation{of: of, do: func(ctx context.Context, s *storm, st step) error {
		began := time.Now()
		old, err := s.users.delete(ctx, keyOf(st.on), of)
		if err != nil {
			return err
		}
		if err := sleep(ctx, st.duration(pauseArg)); err != nil {
			return err
		}
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, Labels: old.Labels, Annotations: old.Annotations},
			Data:       old.Data, BinaryData: old.BinaryData, Immutable: old.Immutable,
		}
		st.shape(cm)
		if err := s.users.create(ctx, cm); err != nil {
			return err
		}
		if time.Since(began) < s.fleet.grace() { // the live read behind the grace finds the new one
			s.users.mu.Lock()
			s.users.replaced[stateOf(old)] = true
			s.users.mu.Unlock()
		}
		return nil
	}}
}

// sleep waits as a person or a tool does that has nothing to wait for.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// labels returns the labels among the arguments.
func (st step) labels() map[string]string {
	out := map[string]string{}
	for arg, value := range st.args {
		if k, ok := strings.CutPrefix(arg, labelArg); ok {
			out[k] = value[0]
		}
	}
	return out
}

func createNamespace(ctx context.Context, s *storm, st step) error {
	return s.users.createNamespace(ctx, st.on, st.labels())
}

func deleteNamespace(ctx context.Context, s *storm, st step) error {
	return s.users.deleteNamespace(ctx, st.on)
}

// namespacePatience is how long a user waits for the end of a namespace: somebody's finalizer may hold it up. Its
// controller looks a second time after 5 s.
const namespacePatience = 8 * time.Second

// recreateNamespace deletes a namespace and creates it anew as soon as it is gone.
func recreateNamespace(ctx context.Context, s *storm, st step) error {
	if err := s.users.deleteNamespace(ctx, st.on); err != nil {
		return err
	}
	err := s.seen.Eventually(ctx, namespacePatience, func() error {
		if s.seen.Namespace(st.on) != nil {
			return fmt.Errorf("%s is still there", st.on)
		}
		return nil
	})
	if err != nil {
		return errMiss
	}
	return s.users.createNamespace(ctx, st.on, st.labels())
}

func labelNamespace(ctx context.Context, s *storm, st step) error {
	return s.users.labelNamespace(ctx, st.on, st.labels())
}

// instead returns the step on something else that the operation can act on, if there is any: of the same name if
// possible, and always the same in the same state.
func (s *storm) instead(op *operation, st step) (step, bool) {
	now := s.observed()
	var same, others []string
	for key, cm := range now.ConfigMaps {
		if op.of == nil || !op.of(cm) || st.on == key.String() {
			continue
		}
		if key.Name == keyOf(st.on).Name {
			same = append(same, key.String())
		}
		others = append(others, key.String())
	}
	for _, ns := range slices.Concat(homes, targets) {
		switch key := (model.Key{Namespace: ns, Name: keyOf(st.on).Name}); {
		case op.makes && now.Namespaces[ns] == nil:
			others = append(others, ns)
		case op.free && now.Namespaces[ns] != nil && now.ConfigMaps[key] == nil:
			others = append(others, key.String())
		}
	}
	choice := same
	if len(choice) == 0 {
		choice = others
	}
	if len(choice) == 0 {
		return st, false
	}
	slices.Sort(choice)
	st.on = choice[hash(st.String())%uint32(len(choice))]
	return st, true
}
