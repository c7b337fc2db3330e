package gitops

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/ssa"
	ssautil "github.com/fluxcd/pkg/ssa/utils"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/annotate"
	"k8s.io/kubectl/pkg/cmd/apply"
	"k8s.io/kubectl/pkg/cmd/replace"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tool applies the manifests of a Git repository.
type tool struct {
	name  string
	apply func(ctx context.Context, m manifest)
}

// These tools write the fields of the manifest and keep the fields of other writers.
var (
	flux         = tool{"Flux", fluxApplies}
	argo         = tool{"Argo CD", func(_ context.Context, m manifest) { kubectl(apply.NewCmdApply, m, "apply", "-f", "-") }}
	argoOnServer = tool{"Argo CD with ServerSideApply=true", func(_ context.Context, m manifest) {
		kubectl(apply.NewCmdApply, m, "apply", "-f", "-", "--server-side", "--field-manager=argocd-controller", "--force-conflicts")
	}}
	helm3    = tool{"Helm 3", helm(kube.ClientUpdateOptionServerSideApply(false, false))}
	helm4    = tool{"Helm 4", helm(kube.ClientUpdateOptionServerSideApply(true, true))}
	kubectl1 = tool{"kubectl apply --server-side --force-conflicts", func(_ context.Context, m manifest) {
		kubectl(apply.NewCmdApply, m, "apply", "-f", "-", "--server-side", "--force-conflicts")
	}}
	topology = tool{"Cluster API's topology controller", topologyApplies}

	// fieldwise are all of these tools.
	fieldwise = []tool{flux, argo, argoOnServer, helm3, helm4, kubectl1, topology}

	// wholesale replaces the whole object, like Argo CD with Replace=true.
	wholesale = tool{"kubectl replace", func(_ context.Context, m manifest) { kubectl(replaces, m, "replace", "-f", "-") }}
)

// fluxApplies applies a Kustomization once, with the options of kustomize-controller v1.9 (internal/controller/kustomization_controller.go,
// apply).
func fluxApplies(ctx context.Context, m manifest) {
	GinkgoHelper()
	const name = "kustomize-controller"
	objects, err := ssautil.ReadObjects(bytes.NewReader(m.yaml()))
	Expect(err).NotTo(HaveOccurred())
	manager := ssa.NewResourceManager(here, nil, ssa.Owner{Field: name, Group: "kustomize.toolkit.fluxcd.io"})
	manager.SetOwnerLabels(objects, "fleet", "flux-system")
	options := ssa.DefaultApplyOptions()
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{corev1.LastAppliedConfigAnnotation, "kustomize.toolkit.fluxcd.io/checksum", "fluxcd.io/sync-checksum"},
		Labels:      []string{"fluxcd.io/sync-gc-mark"},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: name, OperationType: metav1.ManagedFieldsOperationUpdate},
		},
		Exclusions: map[string]string{"kustomize.toolkit.fluxcd.io/ssa": "Merge"},
	}
	_, err = manager.ApplyAllStaged(ctx, objects, options)
	Expect(err).NotTo(HaveOccurred())
}

// topologyApplies applies a check of a ClusterClass like Cluster API's topology controller (serversidepathhelper.go).
func topologyApplies(ctx context.Context, m manifest) {
	GinkgoHelper()
	objects, err := ssautil.ReadObjects(bytes.NewReader(m.yaml()))
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		Expect(here.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("capi-topology"), client.ForceOwnership)).
			To(Succeed())
	}
}

// command creates a command of kubectl.
type command func(name string, f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command

func replaces(_ string, f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return replace.NewCmdReplace(f, streams)
}

func annotates(name string, f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return annotate.NewCmdAnnotate(name, f, streams)
}

// kubectl runs a command of kubectl, with the manifest's file instead of "-". It retries after a failure, like Argo CD and users: kubectl
// replace fails if the manager writes the status of the check between the read and the write of kubectl.
func kubectl(made command, m manifest, args ...string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "check.yaml")
	Expect(os.WriteFile(file, m.yaml(), 0o600)).To(Succeed())
	for i := range args {
		if args[i] == "-" {
			args[i] = file
		}
	}
	Eventually(func() error { return runOnce(made, args) }).Should(Succeed(), strings.Join(args, " "))
}

// fatal is the error that kubectl prints before it exits. It is used to panic, because kubectl's commands continue if the exit function
// returns.
type fatal string

// runOnce runs a command of kubectl in this process, and returns the error with which kubectl would exit.
func runOnce(made command, args []string) (err error) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case fatal:
			err = errors.New("kubectl: " + string(end))
		default:
			panic(end)
		}
	}()
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: GinkgoWriter, ErrOut: GinkgoWriter}
	root := &cobra.Command{Use: "kubectl"}
	root.AddCommand(made("kubectl", cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(reach())), streams))
	root.SetArgs(args)
	return root.Execute()
}

func reach() *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(false)
	file, in := management.KubeconfigFile(), namespace
	flags.KubeConfig, flags.Namespace = &file, &in
	return flags
}

// helm upgrades a release of one check with the options of a Helm version. Helm 3 sends the difference between the last manifest and this
// one, Helm 4 applies on the server. The caller of Helm's client has to pass the last manifest, which is empty for an installation.
func helm(options ...kube.ClientUpdateOption) func(context.Context, manifest) {
	releases := map[string]manifest{}
	return func(_ context.Context, m manifest) {
		GinkgoHelper()
		kube.ManagedFieldsManager = "helm"
		c := kube.New(reach())
		target, err := c.Build(bytes.NewReader(m.yaml()), false)
		Expect(err).NotTo(HaveOccurred())
		last := kube.ResourceList{}
		if was, installed := releases[m.name]; installed {
			last, err = c.Build(bytes.NewReader(was.yaml()), false)
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = c.Update(last, target, slices.Clone(options)...)
		Expect(err).NotTo(HaveOccurred())
		releases[m.name] = m
	}
}
