package suite

import (
	"context"
	"encoding/json"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotate writes one annotation of an object and nothing else; nil removes it. An object that is gone is left at that.
func Annotate(ctx context.Context, c client.Writer, o client.Object, key string, value *string) {
	ginkgo.GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))).To(gomega.Succeed())
}
