// Command decode reads a file of Kubernetes objects as strictly as an API server that validates
// fields: by the types of its API, without a field that is unknown or there twice. It is a module
// of its own, so that the product needs none of it.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: decode FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "decode:", err)
		os.Exit(1)
	}
}

func run(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for in := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := decode(doc); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// serviceMonitor is the part of the Prometheus operator's type that is used here.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Interval      string `json:"interval"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

func decode(doc []byte) error {
	var kind metav1.TypeMeta
	if err := strict.Unmarshal(doc, &kind); err != nil {
		return err
	}
	var object any
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 Service":
		object = new(corev1.Service)
	case "apps/v1 StatefulSet":
		object = new(appsv1.StatefulSet)
	case "policy/v1 PodDisruptionBudget":
		object = new(policyv1.PodDisruptionBudget)
	case "v1 Secret":
		object = new(corev1.Secret)
	case "networking.k8s.io/v1 NetworkPolicy":
		object = new(networkingv1.NetworkPolicy)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		object = new(serviceMonitor)
	default:
		return fmt.Errorf("%s %s is not known here", kind.APIVersion, kind.Kind)
	}
	if err := strict.UnmarshalStrict(doc, object); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	fmt.Println(kind.Kind, object.(metav1.Object).GetName())
	return nil
}
