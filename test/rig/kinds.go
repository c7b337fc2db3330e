package rig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kubemend/kubemend/test/manifests"
)

// Where manifests are, below the Cluster API module and below this project.
const (
	coreCRDs     = "core/config/crd/bases"
	coreWebhooks = "core/config/webhook/manifests.yaml"
	ourCRDs      = "config/crd/bases"
	ourWebhooks  = "config/webhook/manifests.yaml"
	// controlPlaneCRDs are served without their controller: core looks into objects of these kinds.
	controlPlaneCRDs = "controlplane/kubeadm/config/crd/bases"
	simulatedCRDs    = "test/simulator/crds"
)

// askKindEvery is slower than askEvery, because all kinds are asked for at once and an API server that is busy with
// installing them has to answer.
const askKindEvery = 5 * askEvery

// CertManager are files with cert-manager's Certificate and Issuer, for ManagementOptions.CRDs. Of cert-manager itself a rig has nothing:
// see Trust.
func CertManager() ([]string, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	folder, err := dependency(filepath.Join(root, "test", "rig", "certmanager"), "github.com/cert-manager/cert-manager")
	kinds := filepath.Join(folder, "deploy", "crds")
	return []string{filepath.Join(kinds, "cert-manager.io_certificates.yaml"), filepath.Join(kinds, "cert-manager.io_issuers.yaml")}, err
}

// ClusterAPI is the folder of Cluster API's module, which has the manifests of its providers.
func ClusterAPI() (string, error) { return clusterAPI() }

// catalogue is a set of CRDs by name; one that is added later replaces one of the same name.
type catalogue map[string]*apiextensionsv1.CustomResourceDefinition

// readCatalogue reads the kinds of Cluster API, those that the simulators serve, and then the caller's, which may be ours.
func (r *Rig) readCatalogue(hooks, ours *webhooks, more []string) (catalogue, error) {
	upstream, err := clusterAPI()
	if err != nil {
		return nil, err
	}
	all := catalogue{}
	ofCore, err := all.add(filepath.Join(upstream, coreCRDs))
	if err != nil {
		return nil, err
	}
	for _, crd := range ofCore {
		label(crd)
		if hooks != nil {
			crd.Spec.Conversion = hooks.conversion()
		}
	}
	ofControlPlane, err := all.add(filepath.Join(upstream, controlPlaneCRDs))
	if err != nil {
		return nil, err
	}
	for _, crd := range ofControlPlane {
		label(crd)
	}
	if _, err := all.add(filepath.Join(r.root, simulatedCRDs)); err != nil {
		return nil, err
	}
	for _, folder := range more {
		added, err := all.add(folder)
		if err != nil {
			return nil, err
		}
		for _, crd := range added {
			if ours != nil && len(crd.Spec.Versions) > 1 {
				crd.Spec.Conversion = ours.conversion()
			}
		}
	}
	return all, nil
}

// label states which versions follow which contract. Upstream's release has these labels from kustomize; the files in
// the module have not.
func label(crd *apiextensionsv1.CustomResourceDefinition) {
	if crd.Labels == nil {
		crd.Labels = map[string]string{}
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		crd.Labels[clusterv1.GroupVersion.Group+"/"+version] = version
	}
}

// add reads every CRD of a file, or of the YAML files of a folder.
func (all catalogue) add(path string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	read := envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&read); err != nil {
		return nil, fmt.Errorf("read CRDs: %w", err)
	}
	for _, crd := range read.CRDs {
		all[crd.Name] = crd
	}
	return read.CRDs, nil
}

// install creates every CRD, again if that took a busy API server too long, and returns when all of them are served.
func (all catalogue) install(ctx context.Context, cfg *rest.Config) error {
	cfg.WarningHandler = rest.NoWarnings{} // that v1beta1 is deprecated is known
	cfg.QPS = -1
	for {
		_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: slices.Collect(maps.Values(all)), MaxTime: startPatience})
		switch {
		case err == nil:
			return all.listed(ctx, cfg)
		case !apierrors.IsTimeout(err) || ctx.Err() != nil:
			return fmt.Errorf("install CRDs: %w", err)
		}
	}
}

// listed waits until the API server also lists the kinds that it serves already: managers go by that list, and give up if it lacks one.
func (all catalogue) listed(ctx context.Context, cfg *rest.Config) error {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client for CRDs: %w", err)
	}
	var missing error
	err = wait.PollUntilContextCancel(ctx, askKindEvery, true, func(context.Context) (bool, error) {
		_, lists, err := server.ServerGroupsAndResources()
		missing = errors.Join(err, all.missing(lists))
		return missing == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the list of kinds: %w, last answer: %w", err, missing)
	}
	return nil
}

// missing says which kinds are in none of lists.
func (all catalogue) missing(lists []*metav1.APIResourceList) error {
	known := map[string]bool{}
	for _, list := range lists {
		for i := range list.APIResources {
			known[list.GroupVersion+"/"+list.APIResources[i].Name] = true
		}
	}
	var errs []error
	for _, crd := range all {
		for _, version := range crd.Spec.Versions {
			name := strings.Join([]string{crd.Spec.Group, version.Name, crd.Spec.Names.Plural}, "/")
			if version.Served && !known[name] {
				errs = append(errs, fmt.Errorf("%s is not listed", name))
			}
		}
	}
	return errors.Join(errs...)
}

// webhooks is where a manager answers the API server.
type webhooks struct {
	// name is that of the manager; it keeps configurations apart, which all have the same name before kustomize.
	name     string
	port     *port
	caBundle []byte
}

func (c *ControlPlane) newWebhooks(name string) (*webhooks, error) {
	p, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	return &webhooks{name: name, port: p, caBundle: c.ca.pem}, nil
}

// flags make a manager answer there. They are those that the managers of Cluster API have in common.
func (h *webhooks) flags(c *ControlPlane) []string {
	return []string{"--webhook-port=" + h.port.String(), "--webhook-cert-dir=" + c.folder}
}

func (h *webhooks) url(path string) string { return "https://" + h.port.address() + path }

// install registers the webhooks that a manifest lists.
func (h *webhooks) install(ctx context.Context, cfg *rest.Config, manifest string) error {
	content, err := os.ReadFile(manifest)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	all, err := manifests.Decode(content)
	if err != nil {
		return err
	}
	admin, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client for webhooks: %w", err)
	}
	for i := range all {
		o := &all[i]
		err := h.trust(o)
		o.SetName(h.name + "-" + o.GetName())
		if err = errors.Join(err, admin.Create(ctx, o)); err != nil {
			return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Trust does for a manifest what cert-manager and a Service do in a cluster: the API server finds the manager that is started with
// WebhookFlags, and trusts the certificate. It changes webhook configurations and the conversion of kinds, and leaves all other objects as
// they are.
func (c *ControlPlane) Trust(o *unstructured.Unstructured) error {
	if c.ours == nil {
		var err error
		if c.ours, err = c.newWebhooks("kubemend"); err != nil {
			return err
		}
	}
	if err := c.ours.trust(o); err != nil {
		return fmt.Errorf("lead %s %s to the manager: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

func (h *webhooks) trust(o *unstructured.Unstructured) error {
	switch o.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			if err := h.lead(hook.(map[string]any), "clientConfig"); err != nil {
				return err
			}
		}
		return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	case "CustomResourceDefinition":
		if _, converted, err := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook"); err != nil || !converted {
			return err
		}
		return h.lead(o.Object, "spec", "conversion", "webhook", "clientConfig")
	default:
		return nil
	}
}

// lead leads from a Service, of which there is none, to the manager's port on loopback.
func (h *webhooks) lead(object map[string]any, clientConfig ...string) error {
	path, found, err := unstructured.NestedString(object, append(clientConfig, "service", "path")...)
	if err != nil || !found {
		return errors.Join(err, errors.New("find the path of its Service: there is none"))
	}
	return unstructured.SetNestedMap(object, map[string]any{
		"url": h.url(path), "caBundle": base64.StdEncoding.EncodeToString(h.caBundle),
	}, clientConfig...)
}

// asked finds out whether the API server really asks the webhooks, by a MachineHealthCheck that they must refuse. It
// learns of their registration a moment after it stored it, and what it lets through until then was never checked.
//
// The object is applied rather than created: for two seconds after a kind is established, the API server lets every
// creation wait for two seconds.
func (h *webhooks) asked(cfg *rest.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		api, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return fmt.Errorf("make a client for webhooks: %w", err)
		}
		bad := fmt.Sprintf(`{"apiVersion":%q,"kind":"MachineHealthCheck","metadata":{"name":"refused"},`+
			`"spec":{"clusterName":"none","selector":{}}}`, clusterv1.GroupVersion.String())
		err = api.RESTClient().Patch(types.ApplyYAMLPatchType).
			AbsPath("/apis", clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version,
				"namespaces/default/machinehealthchecks/refused").
			Param("dryRun", "All").Param("fieldManager", "rig").Body([]byte(bad)).Do(ctx).Error()
		switch {
		case err == nil:
			return errors.New("have a bad MachineHealthCheck refused: it was accepted")
		case strings.Contains(err.Error(), "selector must not be empty"):
			return nil
		default:
			return fmt.Errorf("have a bad MachineHealthCheck refused: %w", err)
		}
	}
}

// conversion points a kind at the manager's webhook server.
func (h *webhooks) conversion() *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL: ptr.To(h.url("/convert")), CABundle: h.caBundle,
			},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}
